{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "3ed6226f6670949a2db49c0d4d925e8e9fff2ed8f8c0a844d2873164e940b2c6",
 "signature": "28bed3551c57214fed9fd9c8ae3f90f9098af706e2ea5c00d4ab6434a6af1b1b29a5ee6e246a779b0c646a859604d05fe4241c28c8552635b8ad2bcb32ef0508"
}
