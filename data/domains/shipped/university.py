"""A university: departments, instructors, courses, sections, students and enrollments."""

import random

from data.domains import values as v
from data.domains.lexicon import listed
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    category,
    date,
    integer,
    key,
    name,
    real,
    ref,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

DEPARTMENTS = listed(
    "Anthropology|Architecture|Astronomy|Biology|Business|Chemistry|Classics|Computer Science|Drama|Economics|"
    "Education|Engineering|English|Film Studies|Geography|Geology|History|Journalism|Law|Linguistics|Mathematics|"
    "Medicine|Music|Nursing|Philosophy|Physics|Political Science|Psychology|Sociology|Statistics"
)
TOPICS = listed(
    "Genetics|Microeconomics|Algorithms|Ethics|Thermodynamics|Rhetoric|Criminology|Calculus|Phonetics|Cartography|Anatomy|"
    "Optics|Ecology|Logic|Urban Design|Game Theory|Databases|Folklore|Immunology|Macroeconomics|Epistemology|Metalwork|"
    "Number Theory|Organic Compounds|Reporting|Renaissance Art|Screenwriting|Semantics|Soil Science|Stagecraft"
)
TERMS = ["Spring 2022", "Fall 2022", "Spring 2023", "Fall 2023", "Spring 2024"]

HARD = (
    HardQuestion(
        "Which department's courses had the most enrollments in Fall 2023?",
        """
        SELECT d.dept_name
        FROM departments AS d JOIN courses AS c ON c.dept_id = d.dept_id JOIN sections AS s ON s.course_id =
          c.course_id JOIN enrollments AS e ON e.section_id = s.section_id
        WHERE s.term = 'Fall 2023'
        GROUP BY d.dept_id
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which instructors hired since 2018 earn more than the average professor without being professors themselves?",
        """
        SELECT name
        FROM instructors
        WHERE hire_date >= '2018-01-01' AND rank <> 'professor' AND salary > (SELECT AVG(salary) FROM instructors
          WHERE rank = 'professor')
        """,
    ),
    HardQuestion(
        "Which student has the highest average score among the students with at least 8 scores?",
        """
        SELECT s.name
        FROM students AS s JOIN enrollments AS e ON e.student_id = s.student_id
        WHERE e.score IS NOT NULL
        GROUP BY s.student_id
        HAVING COUNT(*) >= 8
        ORDER BY AVG(e.score) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many courses had sections both in Fall 2022 and in Fall 2023?",
        """
        SELECT COUNT(*)
        FROM (SELECT course_id FROM sections WHERE term = 'Fall 2022' INTERSECT SELECT course_id FROM sections WHERE
          term = 'Fall 2023')
        """,
    ),
    HardQuestion(
        "For each level of course, what percentage of the grades given is an F? Give level and percentage, "
        "rounded to 1 decimal, with the levels in alphabetical order.",
        """
        SELECT c.level, ROUND(100.0 * SUM(e.grade = 'F') / COUNT(e.grade), 1)
        FROM courses AS c JOIN sections AS s ON s.course_id = c.course_id JOIN enrollments AS e ON e.section_id =
          s.section_id
        GROUP BY c.level
        ORDER BY c.level
        """,
    ),
    HardQuestion(
        "How many students have taken a course of their own major department?",
        """
        SELECT COUNT(DISTINCT st.student_id)
        FROM students AS st JOIN enrollments AS e ON e.student_id = st.student_id JOIN sections AS s ON s.section_id
          = e.section_id JOIN courses AS c ON c.course_id = s.course_id
        WHERE c.dept_id = st.major_dept_id
        """,
    ),
    HardQuestion(
        "Which instructors have taught in all five terms?",
        """
        SELECT i.name
        FROM instructors AS i JOIN sections AS s ON s.instructor_id = i.instructor_id
        GROUP BY i.instructor_id
        HAVING COUNT(DISTINCT s.term) = 5
        """,
    ),
    HardQuestion(
        "What is the largest number of credits that one student was enrolled for in a single term?",
        """
        SELECT MAX(credits)
        FROM (SELECT SUM(c.credits) AS credits FROM enrollments AS e JOIN sections AS s ON s.section_id =
          e.section_id JOIN courses AS c ON c.course_id = s.course_id GROUP BY e.student_id, s.term)
        """,
    ),
    HardQuestion(
        "Which departments employ nobody?",
        """
        SELECT dept_name
        FROM departments AS d
        WHERE NOT EXISTS (SELECT 1 FROM instructors AS i WHERE i.dept_id = d.dept_id)
        """,
    ),
    HardQuestion(
        "In which department is the gap between the highest and the lowest salary the widest?",
        """
        SELECT d.dept_name
        FROM departments AS d JOIN instructors AS i ON i.dept_id = d.dept_id
        GROUP BY d.dept_id
        ORDER BY MAX(i.salary) - MIN(i.salary) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many sections have more enrollments than half of their seats?",
        """
        SELECT COUNT(*)
        FROM sections AS s
        WHERE (SELECT COUNT(*) FROM enrollments AS e WHERE e.section_id = s.section_id) > s.max_seats / 2.0
        """,
    ),
    HardQuestion(
        "How many students were at least 20 years old on the first of September of their entry year?",
        """
        SELECT COUNT(*)
        FROM students
        WHERE date(birth_date, '+20 years') <= entry_year || '-09-01'
        """,
    ),
)

UNIVERSITY = Domain(
    db_id="university",
    title="A university",
    tables=(
        Table(
            "departments",
            "department",
            "departments",
            (
                key("dept_id"),
                name("dept_name", v.given(DEPARTMENTS), "name"),
                category(
                    "building",
                    v.skewed_choice(
                        [
                            "Ashby Hall",
                            "Curie Building",
                            "Old Library",
                            "Noether House",
                            "West Block",
                        ]
                    ),
                ),
                real("budget", v.reals(180000, 4200000, 0), "budget"),
            ),
            len(DEPARTMENTS),
        ),
        Table(
            "instructors",
            "instructor",
            "instructors",
            (
                key("instructor_id"),
                name("name", v.person_names(unique=True)),
                ref("dept_id", "departments", "department"),
                category(
                    "rank",
                    v.choice(
                        ["lecturer", "assistant professor", "associate professor", "professor"],
                        [30, 28, 24, 18],
                    ),
                ),
                real("salary", v.even_reals(41000, 148000, 0)),
                date("hire_date", v.dates("1994-08-01", "2023-08-31"), "hire date"),
            ),
            98,
        ),
        Table(
            "courses",
            "course",
            "courses",
            (
                key("course_id"),
                name(
                    "course_title",
                    v.composed(
                        (
                            "Introduction to {topic}",
                            "Advanced {topic}",
                            "{topic} Seminar",
                            "History of {topic}",
                            "Topics in {topic}",
                            "{topic} in Practice",
                            "Foundations of {topic}",
                        ),
                        unique=True,
                        topic=TOPICS,
                    ),
                    "title",
                    "course title",
                ),
                ref("dept_id", "departments", "department"),
                integer("credits", v.choice([2, 3, 4, 5, 6], [10, 38, 28, 12, 12]), "credits"),
                category(
                    "level",
                    v.choice(
                        ["introductory", "intermediate", "advanced", "graduate"], [34, 30, 22, 14]
                    ),
                ),
            ),
            170,
        ),
        Table(
            "sections",
            "section",
            "sections",
            (
                key("section_id"),
                ref("course_id", "courses", "course"),
                ref("instructor_id", "instructors", "instructor", null=0.05),
                category("term", v.choice(TERMS, [16, 19, 20, 22, 23])),
                category(
                    "weekday",
                    v.choice(
                        ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"],
                        [24, 22, 20, 20, 14],
                    ),
                ),
                integer(
                    "max_seats",
                    v.choice([12, 15, 18, 20, 24, 25, 30, 36, 40, 60, 80, 120]),
                    "seats",
                ),
            ),
            320,
        ),
        Table(
            "students",
            "student",
            "students",
            (
                key("student_id"),
                name("name", v.person_names()),
                ref("major_dept_id", "departments", "major department", null=0.08),
                category("home_country", v.countries(18), "country", "home country"),
                integer("entry_year", v.integers(2018, 2021), "entry year"),
                date(
                    "birth_date", v.dates("1997-01-01", "2005-12-31"), "birth date", "date of birth"
                ),
                real("scholarship", v.choice([500.0, 1000.0, 1500.0, 2500.0, 4000.0], null=0.7)),
            ),
            540,
        ),
        Table(
            "enrollments",
            "enrollment",
            "enrollments",
            (
                key("enrollment_id"),
                ref("section_id", "sections", "section"),
                ref("student_id", "students", "student"),
                real("score", v.even_reals(35, 100, 1, null=0.09)),
                category("grade", v.choice(["A", "B", "C", "D", "F"])),
            ),
            2700,
        ),
    ),
    hard=HARD,
)


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Students enter at about 18; the grade follows from the score, and neither is there before the
    other."""

    def student(row: dict[str, Value]) -> dict[str, Value]:
        entry = whole(row["entry_year"])
        return {
            "birth_date": f"{entry - rng.choice((18, 18, 19, 19, 20, 22))}{str(row['birth_date'])[4:]}".replace(
                "-02-29", "-02-28"
            )
        }

    def enrollment(row: dict[str, Value]) -> dict[str, Value]:
        score = row["score"]
        if not isinstance(score, float):
            return {"grade": None}
        score = round(35 + (score - 35) * (0.55 + 0.45 * rng.random()) + 12 * rng.random(), 1)
        score = min(score, 100.0)
        grade = next(
            (
                letter
                for letter, least in (("A", 85), ("B", 72), ("C", 60), ("D", 50))
                if score >= least
            ),
            "F",
        )
        return {"score": score, "grade": grade}

    sheet.edit("students", student)
    sheet.edit("enrollments", enrollment)


SHIPPED = Shipped(UNIVERSITY, finish)
