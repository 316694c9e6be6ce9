"""A bakery with a shop and deliveries: customers, suppliers, products, orders and order items."""

import random

from data.domains import values as v
from data.domains.lexicon import COMPANY_HEADS, LAST_NAMES, RARE_LAST_NAMES, listed
from data.domains.shipped.parts import (
    Sheet,
    Shipped,
    between,
    category,
    date,
    integer,
    key,
    mailbox,
    name,
    real,
    ref,
    text,
    whole,
)
from data.domains.spec import Domain, HardQuestion, Table, Value

# name, category, price
PRODUCTS: tuple[tuple[str, str, float], ...] = (
    ("Sourdough Loaf", "bread", 5.5),
    ("Rye Loaf", "bread", 5.2),
    ("Baguette", "bread", 2.4),
    ("Ciabatta", "bread", 3.1),
    ("Focaccia", "bread", 4.25),
    ("Spelt Loaf", "bread", 5.95),
    ("Brioche Loaf", "bread", 6.1),
    ("Walnut Bread", "bread", 6.4),
    ("Potato Bread", "bread", 4.8),
    ("Pumpernickel", "bread", 5.75),
    ("Milk Rolls", "bread", 3.6),
    ("Pretzel", "bread", 2.1),
    ("Butter Croissant", "pastry", 2.2),
    ("Almond Croissant", "pastry", 3.05),
    ("Pain au Chocolat", "pastry", 2.65),
    ("Cinnamon Roll", "pastry", 3.2),
    ("Cardamom Bun", "pastry", 3.3),
    ("Apple Turnover", "pastry", 2.95),
    ("Cherry Danish", "pastry", 3.1),
    ("Éclair", "pastry", 3.5),
    ("Cannoli", "pastry", 3.25),
    ("Baklava", "pastry", 2.85),
    ("Pastel de Nata", "pastry", 1.95),
    ("Churros", "pastry", 3.4),
    ("Chocolate Cake", "cake", 28.0),
    ("Carrot Cake", "cake", 26.5),
    ("Lemon Drizzle Cake", "cake", 22.0),
    ("Cheesecake", "cake", 29.5),
    ("Black Forest Cake", "cake", 32.0),
    ("Victoria Sponge", "cake", 24.0),
    ("Honey Cake", "cake", 27.0),
    ("Opera Cake", "cake", 34.5),
    ("Red Velvet Cake", "cake", 30.0),
    ("Banana Bread", "cake", 12.5),
    ("Ginger Cookie", "cookie", 1.4),
    ("Oat Cookie", "cookie", 1.3),
    ("Chocolate Chip Cookie", "cookie", 1.5),
    ("Shortbread", "cookie", 1.25),
    ("Macaron", "cookie", 2.0),
    ("Biscotti", "cookie", 1.75),
    ("Snickerdoodle", "cookie", 1.45),
    ("Linzer Cookie", "cookie", 1.9),
    ("Ham Sandwich", "sandwich", 6.2),
    ("Cheese Toastie", "sandwich", 5.9),
    ("Falafel Wrap", "sandwich", 6.8),
    ("Tuna Melt", "sandwich", 7.1),
    ("Egg Sandwich", "sandwich", 5.4),
    ("Veggie Panini", "sandwich", 6.95),
    ("Chicken Panini", "sandwich", 7.4),
    ("Smoked Salmon Bagel", "sandwich", 8.5),
    ("Spinach Quiche", "savory", 5.8),
    ("Quiche Lorraine", "savory", 5.95),
    ("Sausage Roll", "savory", 3.9),
    ("Cheese Straws", "savory", 2.75),
    ("Beef Empanada", "savory", 4.3),
    ("Mushroom Pie", "savory", 6.6),
    ("Börek", "savory", 4.6),
    ("Espresso", "drink", 2.3),
    ("Cappuccino", "drink", 3.4),
    ("Hot Chocolate", "drink", 3.7),
    ("Orange Juice", "drink", 3.2),
    ("Lemonade", "drink", 2.9),
    ("Green Tea", "drink", 2.6),
    ("Chai Latte", "drink", 3.8),
)

HARD = (
    HardQuestion(
        "Which product category earned the most in 2023, counting quantity times unit price less the discount?",
        """
        SELECT p.category
        FROM order_items AS i JOIN orders AS o ON o.order_id = i.order_id JOIN products AS p ON p.product_id =
          i.product_id
        WHERE o.order_date BETWEEN '2023-01-01' AND '2023-12-31'
        GROUP BY p.category
        ORDER BY SUM(i.quantity * p.unit_price * (1 - COALESCE(i.discount, 0))) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "List the names of the products that nobody has ever ordered through the app, in alphabetical order.",
        """
        SELECT product_name
        FROM products
        WHERE product_id NOT IN (SELECT i.product_id FROM order_items AS i JOIN orders AS o ON o.order_id =
          i.order_id WHERE o.channel = 'app')
        ORDER BY product_name
        """,
    ),
    HardQuestion(
        "How many customers with the gold loyalty level have placed more than 5 orders?",
        """
        SELECT COUNT(*)
        FROM (SELECT c.customer_id FROM customers AS c JOIN orders AS o ON o.customer_id = c.customer_id WHERE
          c.loyalty_level = 'gold' GROUP BY c.customer_id HAVING COUNT(*) > 5)
        """,
    ),
    HardQuestion(
        "For each channel, what percentage of the rated orders got a rating of 5? Give channel and "
        "percentage, rounded to 1 decimal, with the channels in alphabetical order.",
        """
        SELECT channel, ROUND(100.0 * SUM(rating = 5) / COUNT(rating), 1)
        FROM orders
        WHERE rating IS NOT NULL
        GROUP BY channel
        ORDER BY channel
        """,
    ),
    HardQuestion(
        "Who has spent the most on cakes, before any discount?",
        """
        SELECT c.name
        FROM customers AS c JOIN orders AS o ON o.customer_id = c.customer_id JOIN order_items AS i ON i.order_id =
          o.order_id JOIN products AS p ON p.product_id = i.product_id
        WHERE p.category = 'cake'
        GROUP BY c.customer_id
        ORDER BY SUM(i.quantity * p.unit_price) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "Which suppliers provide products of at least three different categories?",
        """
        SELECT s.company_name
        FROM suppliers AS s JOIN products AS p ON p.supplier_id = s.supplier_id
        GROUP BY s.supplier_id
        HAVING COUNT(DISTINCT p.category) >= 3
        """,
    ),
    HardQuestion(
        "In which month of 2023 were the most orders placed? Answer as YYYY-MM.",
        """
        SELECT strftime('%Y-%m', order_date) AS month
        FROM orders
        WHERE order_date LIKE '2023-%'
        GROUP BY month
        ORDER BY COUNT(*) DESC LIMIT 1
        """,
    ),
    HardQuestion(
        "How many different products does an order hold on average? Leave out orders without items and round "
        "to 2 decimals.",
        """
        SELECT ROUND(AVG(products), 2)
        FROM (SELECT COUNT(DISTINCT product_id) AS products FROM order_items GROUP BY order_id)
        """,
    ),
    HardQuestion(
        "How many customers have used all four channels?",
        """
        SELECT COUNT(*)
        FROM (SELECT customer_id FROM orders GROUP BY customer_id HAVING COUNT(DISTINCT channel) = 4)
        """,
    ),
    HardQuestion(
        "What is the longest time, in days, that passed between two consecutive orders of the same customer?",
        """
        WITH gaps AS (SELECT julianday(order_date) - julianday(LAG(order_date) OVER (PARTITION BY customer_id ORDER
          BY order_date)) AS days FROM orders) SELECT CAST(MAX(days) AS INTEGER)
        FROM gaps
        """,
    ),
    HardQuestion(
        "Which products cost less than 70 percent of the average price of their own category?",
        """
        SELECT p.product_name
        FROM products AS p
        WHERE p.unit_price < 0.7 * (SELECT AVG(q.unit_price) FROM products AS q WHERE q.category = p.category)
        """,
    ),
    HardQuestion(
        "Which customers from Turin have never ordered a bread?",
        """
        SELECT c.name
        FROM customers AS c
        WHERE c.home_city = 'Turin' AND NOT EXISTS (SELECT 1 FROM orders AS o JOIN order_items AS i ON i.order_id =
          o.order_id JOIN products AS p ON p.product_id = i.product_id WHERE o.customer_id = c.customer_id AND
          p.category = 'bread')
        """,
    ),
)

BAKERY = Domain(
    db_id="bakery",
    title="A bakery and its orders",
    tables=(
        Table(
            "suppliers",
            "supplier",
            "suppliers",
            (
                key("supplier_id"),
                name(
                    "company_name",
                    v.composed(
                        ("{head} {tail}", "{last} {tail}", "{last} & Sons"),
                        unique=True,
                        head=COMPANY_HEADS,
                        last=LAST_NAMES + RARE_LAST_NAMES,
                        tail=listed(
                            "Mills Dairy Foods Farms Coffee Orchards Grains Bakery Imports"
                        ),
                    ),
                    "company name",
                    "name",
                ),
                category("country", v.countries(7)),
                integer("delivery_days", v.integers(1, 14, null=0.06), "delivery days"),
            ),
            30,
        ),
        Table(
            "products",
            "product",
            "products",
            (
                key("product_id"),
                name("product_name", v.given([row[0] for row in PRODUCTS]), "name", "product name"),
                category("category", v.given([row[1] for row in PRODUCTS])),
                real("unit_price", v.given([row[2] for row in PRODUCTS]), "price", "unit price"),
                integer("calories", v.integers(90, 780, null=0.08), "calories"),
                ref("supplier_id", "suppliers", "supplier", null=0.06),
            ),
            len(PRODUCTS),
        ),
        Table(
            "customers",
            "customer",
            "customers",
            (
                key("customer_id"),
                name("name", v.person_names()),
                category("home_city", v.cities(9), "city", "home city"),
                category(
                    "loyalty_level",
                    v.choice(["bronze", "silver", "gold"], [50, 32, 18], null=0.2),
                    "loyalty level",
                ),
                text("email", v.emails(null=0.1), "email", "email address"),
                date("signup_date", v.dates("2020-03-01", "2024-02-28"), "signup date"),
            ),
            240,
        ),
        Table(
            "orders",
            "order",
            "orders",
            (
                key("order_id"),
                ref("customer_id", "customers", "customer"),
                date("order_date", v.dates("2022-01-02", "2024-04-30"), "order date"),
                category(
                    "channel", v.choice(["shop", "website", "app", "phone"], [40, 28, 22, 10])
                ),
                real("delivery_fee", v.choice([2.5, 3.5, 4.0, 4.9, 6.0], null=0.4), "delivery fee"),
                integer("rating", v.choice([1, 2, 3, 4, 5], [3, 6, 16, 40, 35], null=0.35)),
            ),
            1050,
        ),
        Table(
            "order_items",
            "order item",
            "order items",
            (
                key("item_id"),
                ref("order_id", "orders", "order"),
                ref("product_id", "products", "product"),
                integer("quantity", v.integers(1, 12, skew=True)),
                real(
                    "discount",
                    v.choice([0.05, 0.1, 0.15, 0.2], null=0.8),
                    "discount rate",
                    "discount",
                ),
            ),
            2700,
        ),
    ),
    hard=HARD,
)


def finish(sheet: Sheet, rng: random.Random) -> None:
    """Customers order after they sign up; orders in the shop pay no delivery."""
    sheet.edit("customers", lambda row: mailbox(rng, row, "name"))
    customers = sheet.records("customers")

    def order(row: dict[str, Value]) -> dict[str, Value]:
        joined = str(customers[whole(row["customer_id"])]["signup_date"])
        placed = between(rng, max(joined, "2022-01-02"), "2024-04-30")
        return {"order_date": placed} | ({"delivery_fee": None} if row["channel"] == "shop" else {})

    sheet.edit("orders", order)


SHIPPED = Shipped(BAKERY, finish)
