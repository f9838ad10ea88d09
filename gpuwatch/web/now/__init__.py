"""The first page: what needs the owner now, and the first steps of a new one."""
