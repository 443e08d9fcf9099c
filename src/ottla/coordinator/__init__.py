"""Group coordinators: state machines whose every change is a record in __consumer_offsets."""
