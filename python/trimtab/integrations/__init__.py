"""What frameworks need beyond a URL. Nothing here is imported by the rest of ``trimtab``."""
