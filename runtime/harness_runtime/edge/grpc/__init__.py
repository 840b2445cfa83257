"""The Open Inference Protocol over gRPC, on grpc.aio. The only place of the runtime that sees protobuf."""
