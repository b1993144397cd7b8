"""Models of what faster AI does to a recognition pipeline. They need no bus and no measurement."""
