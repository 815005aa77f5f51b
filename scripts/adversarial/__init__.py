"""Tables that other libraries write and that readers are easily wrong about, and what has to be told of each."""
