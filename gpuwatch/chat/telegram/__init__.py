"""Telegram's face of the chat: long polling, buttons, pictures."""
