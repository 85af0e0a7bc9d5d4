"""What people and machines get to see of a job: reports, and later progress, logs and metrics."""
