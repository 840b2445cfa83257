"""The port for operators and scrapers: metrics, probes, the state page. Clients' REST is not here."""
