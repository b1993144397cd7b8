"""`mez bridge events`: sends the events of an edge to webhooks and to MQTT (docs/events.md).

| module | the question it answers |
| --- | --- |
| `file` | what does a bridge's file say? |
| `spool` | which events must still go to which target, also after a restart? |
| `watch` | does the edge answer? |
| `delivery` | how are events delivered in order, despite failures? |
| `webhook` | how does an event get to a URL? |
| `mqtt`, `home` | how do events and figures get to an MQTT broker, and how does Home Assistant find them? |
| `run`, `command` | who starts all this, and what do people see and type? |
"""
