"""``python -m deviceplugin.mps``: the runner of the MPS daemons."""

from .runner import main

if __name__ == "__main__":
    main()
