"""Jobs on several machines through a real dstack server, whose cloud is this machine."""
