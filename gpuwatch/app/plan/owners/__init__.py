"""What kinds of owners should do: rent, reserve, buy, credits or both."""
