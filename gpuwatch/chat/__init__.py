"""Commands and buttons for the owner's chat: `chat_actions` knows no messenger, `telegram/` is the first one."""
