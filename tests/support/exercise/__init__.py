"""What exercises of hooked functions are written with, and what runs them."""
