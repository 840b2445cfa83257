"""The load generator's wire: the only place where it meets gRPC and protobuf."""
