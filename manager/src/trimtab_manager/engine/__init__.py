"""One SGLang engine under control: its HTTP calls, what it can do, who it is, and the states it goes through."""
