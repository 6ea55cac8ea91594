"""A compile service: compiles are actions of a server that speaks the Remote Execution API
(REAPI, version 2), over gRPC."""
