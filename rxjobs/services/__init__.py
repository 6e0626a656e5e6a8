"""What runs beside the queues."""
