{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "fae3a5c48e5b86c4e88672cc53de73a466d40733d7a73621cbc6b4c09491052c",
 "signature": "b960143561f8b4f76c5ef63d9ae739c031a0073eef2e19c3f475d904ba4fafbc5fb83b3f9c264bcd8cccf3e699ef5878c9e2201ad4ed9588bb7483bec0992e0a"
}
