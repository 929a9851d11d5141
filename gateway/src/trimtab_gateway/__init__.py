"""Gateway of trimtab: control app and configuration around the Rust data plane."""
