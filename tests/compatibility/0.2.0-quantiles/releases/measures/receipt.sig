{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "94781384da3c53700e826b09c09e7bd6df7c8b9b898e56c83508066b21b62e44",
 "signature": "7d7fae44267a347486eb8d74aba572947d3be7c9b97eee7a362c3bbc10d552e9bb9444cd923e8de62aea754b6b598befd76763def37e92624b60b2d7e0621a02"
}
