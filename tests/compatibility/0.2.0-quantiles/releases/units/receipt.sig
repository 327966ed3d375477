{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "3c3002d7a09643c9ee67e28e2ab30559a67809f6d12914255fc1e85b9c32359a",
 "signature": "94c4dce7dbf457cbd8246cb6f065abfa5867427ddf9b66b623ba544034098ff6ed18d18bce6007072eba00ce90ef1dffd2caf37a5b697391863717a5e79e4d00"
}
