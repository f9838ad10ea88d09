"""Commands and buttons for the owner's chat: `actions` is independent of messengers, `telegram/` is the first one."""
