def test_a_question_is_split_among_readers_and_their_answers_become_one(fleet, model, run, transcript):
    model.calls_at_once(
        ("ask_agent", {"agent_id": "reader", "message": "What does the lamp cost in Oslo?"}),
        ("ask_agent", {"agent_id": "reader", "message": "What does the lamp cost in Bergen?"}),
    )
    # Both readers ask at once, so they have the same answer here.
    model.says("It costs 49 euros.").says("It costs 49 euros.").says("49 euros in both cities.")
    ended = run("lead", "Where is the lamp cheaper?")
    assert ended.text == "49 euros in both cities.", ended.error
    findings = [entry.text for entry in transcript(ended) if entry.kind == "result"]
    assert len(findings) == 2
    assert all("It costs 49 euros." in finding for finding in findings)


def test_the_lead_learns_that_a_reader_found_nothing(model, run):
    model.calls("ask_agent", agent_id="reader", message="What does the lamp cost in Rome?")
    model.says("I found nothing.").says("There is no price for Rome.")
    assert run("lead", "What does it cost in Rome?").text == "There is no price for Rome."
