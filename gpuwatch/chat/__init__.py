"""Commands and buttons for the owner's chat: `actions` know no messenger, `telegram/` is the first face of them."""
