"""The 2020 Census: Kifer, Abowd and others 2022."""
