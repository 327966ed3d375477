{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "3ed6226f6670949a2db49c0d4d925e8e9fff2ed8f8c0a844d2873164e940b2c6",
 "signature": "0d0d98938e6590c2ef85d3306aaa033c1bbe654d8ecb1b8ef24847747d2f5fbd064ee06adef378e7e47df7200425079cef5e0780bda8ed37823eaaa4d08c3d0c"
}
