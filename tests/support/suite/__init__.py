"""How the tests themselves are run: pytest plugins, and what they are made of."""
