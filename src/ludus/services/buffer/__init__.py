"""The buffer: a bounded queue of segments between those who play and those who learn."""
