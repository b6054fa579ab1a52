"""Everything that speaks gRPC: plugin servers, registration, podresources."""
