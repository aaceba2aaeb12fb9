"""The report of an evaluation."""
class Report:
    """Being written."""
