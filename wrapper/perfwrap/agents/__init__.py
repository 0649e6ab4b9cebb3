"""For language-model agents: the server of `perfwrap mcp`, and the skill that `perfwrap skill` prints.

workspace.py decides what the server may touch, agent_answers.py writes short answers, agent_server.py has the tools.
"""
