{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "94781384da3c53700e826b09c09e7bd6df7c8b9b898e56c83508066b21b62e44",
 "signature": "43f124439f1b268c59ba5f35573eb9c19fa171e8960635592fcfe3b83f48f07afbd308dcbbf0fffa1064ebd535d7d9522c1c37bbf319500e6e0b08e0952ad408"
}
