"""What a hostile tenant does in its container, for `chaos` and for the tests of `make hostile`.

`attacks` is what it does, `container` what a runtime leaves it, `enter` how it gets there.
"""
