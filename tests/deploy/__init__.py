"""What runs Gossamer in containers keeps its rules, and every rule can be broken."""
