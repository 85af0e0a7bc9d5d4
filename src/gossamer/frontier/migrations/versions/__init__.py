"""One module per version. Never edit a released one."""
