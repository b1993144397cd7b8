"""`mez bridge events`: sends what happens at an edge to webhooks and to MQTT (docs/events.md).

| module | the question it answers |
| --- | --- |
| `file` | what does a bridge's file say? |
| `spool` | which events still have to go to which target, and what outlives a restart? |
| `watch` | what does the edge show as a state only: groups behind, certificates near their end? |
| `delivery` | how is a spool emptied, in order, over failures? |
| `webhook` | how does an event get to a URL? |
| `mqtt`, `home` | how do events and figures get to an MQTT broker, and how does Home Assistant find them? |
| `run`, `command` | who starts all this, and what do people see and type? |
"""
