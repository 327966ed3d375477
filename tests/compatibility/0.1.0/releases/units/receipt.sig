{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "fae3a5c48e5b86c4e88672cc53de73a466d40733d7a73621cbc6b4c09491052c",
 "signature": "85cccb061548f2855a873554e4187cdc437e8f3ba1bb17b06631e3b7016d9b4b38fc7ddc40ff992c08d1974d69c0e3e987e4e876618bf3c7d1fd606d1cfcbc0a"
}
