{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "d00a213b09c8e0549b101d357d972f6c914ff88279585ec9fa5454a543efc94f",
 "signature": "23ec318eb8c8fe5be99cd43d08a8d04752c7f762e7c5ae04978c936ff9faf0250f7587efdf8d42a1c341099c27feb45dd59b3345acdfe658ed40030e1c729405"
}
