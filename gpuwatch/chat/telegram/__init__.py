"""The chat on Telegram: long polling, buttons, pictures."""
