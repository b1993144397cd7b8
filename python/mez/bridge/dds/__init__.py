"""`mez bridge dds`: copies cameras into topics of DDS and ROS 2, and image topics into cameras (docs/dds.md).

| module | the question it answers |
| --- | --- |
| `file` | what does a bridge's file say? |
| `names` | which ROS name has a camera? |
| `cdr` | how is a sample encoded? |
| `types` | which types of ROS 2 are there, and what are their fields? |
| `convert` | what does a frame, or what was found in it, look like in these types, and the reverse? |
| `library` | which functions of Cyclone DDS are called, and with which structures? |
| `domain` | how are samples written and read? |
| `fence` | by which interfaces does anything come? |
| `outward`, `inward` | how do frames get from the edge into topics, and samples into cameras? |
| `board` | what became of frames and samples, and what do people see? |
| `run` | who starts all this, and ends it? |
"""
