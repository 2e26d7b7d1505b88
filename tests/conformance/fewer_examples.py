"""The executors' conformance suites in less time, for variants of an executor that runs them in full."""

from conformance.executor_suite import ExecutorConformance, laws
from conformance.program_suite import ProgramConformance, comparable_programs
from examples import examples
from hypothesis import given, settings
from strategies import problems, schedule_options, stationaries


def fewer(ranks, examples):
    """The executors' suite with fewer ranks and examples."""

    def again(law, dtype="float64"):
        given_less = given(
            problem=problems(max_ranks=ranks, dtype=dtype), stationary=stationaries, options=schedule_options
        )
        return settings(laws, max_examples=examples)(given_less(law.hypothesis.inner_test))

    class Fewer(ExecutorConformance):
        test_a_product_of_whole_numbers_is_exact = again(
            ExecutorConformance.test_a_product_of_whole_numbers_is_exact
        )
        test_a_float32_product_is_right_to_1e_5 = again(
            ExecutorConformance.test_a_float32_product_is_right_to_1e_5, "float32"
        )
        test_no_action_starts_before_what_it_waits_for_has_finished = again(
            ExecutorConformance.test_no_action_starts_before_what_it_waits_for_has_finished
        )

    return Fewer


FewerExamples = fewer(ranks=8, examples=examples(30))


class FewerPrograms(ProgramConformance):
    ranks = (2, 3, 6)
    test_any_program_gives_what_its_actions_give_one_after_another = settings(laws, max_examples=examples(8))(
        given(schedule=comparable_programs)(
            ProgramConformance.test_any_program_gives_what_its_actions_give_one_after_another.hypothesis.inner_test
        )
    )
