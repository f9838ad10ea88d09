"""What all settings share: durations, texts and fields. Pure."""
