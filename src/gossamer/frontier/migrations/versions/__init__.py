"""One module per version. Never edit a released one; only ever add, so that workers of the version before go on."""
