{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "3c3002d7a09643c9ee67e28e2ab30559a67809f6d12914255fc1e85b9c32359a",
 "signature": "1fe7db4b1db615981ed7947fd01caf152fceaa6d3a9ed03848818f1de891ae50411e96c09d1a0383d63d8fdbb2a1d40d1c48af3b9a28b70d9cc2046afaa52d02"
}
