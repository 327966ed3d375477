{
 "schema": "neyman-signature/1",
 "algorithm": "ed25519",
 "public_key": "3ed6226f6670949a2db49c0d4d925e8e9fff2ed8f8c0a844d2873164e940b2c6",
 "signature": "2e9d23ab415f204b6c789a9058329319e154f6d95db10a92b3fb43494d3cd8c127ddd4019e166b9d48a6c7bfac6ea85c818b929837e49c76c04dba02b5921e04"
}
