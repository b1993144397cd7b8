"""`mez bridge dds`: copies cameras into topics of DDS and ROS 2, and image topics into cameras (docs/dds.md).

| module | the question it answers |
| --- | --- |
| `file` | what does a bridge's file say? |
| `names` | which ROS name has a camera? |
| `cdr` | how is a sample encoded? |
| `types` | which types of ROS 2 are there, and what are their fields? |
| `convert` | how are frames and detections converted to these types, and back? |
| `library` | which functions of Cyclone DDS are called, and with which structures? |
| `domain` | how are samples written and read? |
| `fence` | how is traffic limited to some interfaces? |
| `outward`, `inward` | how do frames get from the edge into topics, and samples into cameras? |
| `board` | how are frames and samples counted and reported? |
| `run` | who starts all this, and ends it? |
"""
