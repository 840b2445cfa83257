"""Types of the custom resources, their validation, and the reading of files that hold them.

``base`` and ``fields`` carry the other types; ``inferenceservice`` and ``latency_profile`` are the two kinds; ``load`` reads files
(``yaml_source`` → ``checking`` → ``messages``) and never raises for what is in them. Talks to no cluster, needs no torch or grpc.
"""
