"""What the outside sees: spans and metrics, by OpenTelemetry's API. No other package of rxjobs imports it."""
