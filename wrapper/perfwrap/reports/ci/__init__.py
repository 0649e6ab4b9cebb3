"""A diagnosis for services that show the findings of checks beside the source: SARIF and GitLab's code quality."""
