{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "94781384da3c53700e826b09c09e7bd6df7c8b9b898e56c83508066b21b62e44",
 "signature": "56891706a680ecd3b2d7142f1f5fc50d12d496e795fac3c4a5cb9d536eb107c941ec1faf22fa61b7733e6cc56b0a7e374411b6cbbcb796fcd2b60b97f84ebc0c"
}
